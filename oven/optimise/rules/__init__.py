"""The rules, all of them: one file each, called as the file is. oven/optimise/passes.py has their
order.

    BITS          remove_identity, fold_constants, merge_common, drop_unused_columns,
                  pull_back_threshold, bins_into_trees, impute_into_trees, one_hot_into_trees,
                  join_elementwise, join_picks, join_tables, dense_into_trees
    REASSOCIATES  the others

`explain` shows where each applied, `PRETZEL_WITHOUT=name` leaves one out.
"""

from __future__ import annotations

from oven.optimise.rule import Rule
from oven.optimise.rules import (
    affine_after_linear,
    affine_into_linear,
    argmax_without_softmax,
    bins_into_trees,
    collapse_elementwise,
    dense_into_trees,
    drop_unused_columns,
    drop_zero_weights,
    fold_constants,
    impute_into_trees,
    join_elementwise,
    join_linears,
    join_picks,
    join_tables,
    linear_into_linear,
    merge_common,
    normalise_after_linear,
    one_hot_into_linear,
    one_hot_into_trees,
    pull_back_threshold,
    push_linear_through_concat,
    remove_identity,
    sparse_into_linear,
)

RULES: dict[str, Rule] = {
    module.RULE.name: module.RULE
    for module in (
        remove_identity,
        fold_constants,
        merge_common,
        pull_back_threshold,
        bins_into_trees,
        impute_into_trees,
        one_hot_into_trees,
        argmax_without_softmax,
        drop_zero_weights,
        drop_unused_columns,
        normalise_after_linear,
        affine_into_linear,
        affine_after_linear,
        linear_into_linear,
        one_hot_into_linear,
        sparse_into_linear,
        push_linear_through_concat,
        collapse_elementwise,
        join_elementwise,
        join_linears,
        join_picks,
        join_tables,
        dense_into_trees,
    )
}
