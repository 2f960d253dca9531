"""The passes, in order, each with its reason for being there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from flour.core.op import Op
from oven.optimise.pattern import Rule
from oven.optimise.rules import RULES
from oven.optimise.rules_index import NEEDS


@dataclass(eq=False)  # compared by identity, which is quick
class Pass:
    """Rules applied together until nothing changes; of several that fit, the first wins."""

    name: str
    why: str
    #: The rules, or names of rules that are imported when a program has the operators they need.
    listed: tuple[Rule | str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rules, in their order."""
        return tuple(each if isinstance(each, str) else each.name for each in self.listed)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, all of them imported."""
        return tuple(RULES[each] if isinstance(each, str) else each for each in self.listed)


@lru_cache(1024)
def possible(one: Pass, kinds: frozenset[type[Op]]) -> tuple[Rule, ...]:
    """The rules of a pass that can apply to a program with operators of these classes."""
    present = frozenset(each.__name__ for kind in kinds for each in kind.__mro__)
    found = (
        each
        for each in one.listed
        if not isinstance(each, str)
        or all(not present.isdisjoint(needed) for needed in NEEDS.get(each, ()))
    )
    return tuple(RULES[each] if isinstance(each, str) else each for each in found)


def _pass(name: str, why: str, *rules: str) -> Pass:
    """These rules first, then rules registered for this pass."""
    # The index has the rules that belong to no pass by themselves.
    others = (RULES[rule] for rule in RULES if rule not in NEEDS)
    joining = (rule.name for rule in others if name in rule.passes and rule.name not in rules)
    return Pass(name, why, (*rules, *joining))


PASSES: tuple[Pass, ...] = (
    _pass(
        "tidy",
        "what does nothing goes first, so that the patterns of all others see through it",
        *("remove_identity", "fold_constants", "merge_common"),
    ),
    _pass(
        "decide",
        "before any rule moves the numbers by rounding: a threshold is pulled back to the exact "
        "float, and steps that a comparison swallowed need no merging",
        *("pull_back_threshold", "bins_into_trees", "impute_into_trees", "one_hot_into_trees"),
        *("argmax_without_softmax", "choose_before_text", "categorise_labels"),
    ),
    _pass(
        "narrow",
        "before anything is folded into weights, as folding would hide which columns are unused",
        *("drop_zero_weights", "drop_unused_columns", "remove_identity"),
    ),
    _pass(
        "merge",
        "links and scales move past sums first, then chains are folded into weights whole; what "
        "no weights swallowed is collapsed in the next pass, never here, or it would be half done",
        *("normalise_after_linear", "affine_into_linear", "affine_after_linear"),
        *("linear_into_linear", "one_hot_into_linear", "sparse_into_linear"),
        "push_linear_through_concat",
    ),
    _pass(
        "collapse",
        "after merging: these chains stay, so make them short, free of divisions and of searches",
        *("collapse_elementwise", "codes_into_leaves"),
    ),
    _pass(
        "join",
        "models that stood side by side may look at the very same columns now, as the passes above "
        "have taken their scalers away",
        *("remove_identity", "join_elementwise", "join_tables", "join_linears", "join_picks"),
    ),
    _pass(
        "finish",
        "what the passes above left behind: identities, constants, equal sums; how vectors are "
        "stored comes last, as other rules know them by how they were written",
        *("remove_identity", "fold_constants", "merge_common", "drop_unused_columns"),
        "dense_into_trees",
    ),
)
