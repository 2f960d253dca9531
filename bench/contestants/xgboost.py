"""XGBoost with inplace_predict, which its docs advise for low latency.

The trees are LightGBM's, written as an XGBoost model: x <= t becomes x < the next float32 above t.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np

from bench.contestant import Contestant, Model, float32_block, float32_row
from bench.onnx_export import rounded_down
from bench.workload import Pipeline, Saved


class XgBoost(Contestant):
    """The same trees in XGBoost's own file."""

    name = "xgboost"
    title = "XGBoost"
    packages = ("xgboost-cpu", "numpy")
    workloads = ("gbt",)
    settings = "inplace_predict, validate_features=False, nthread; trees rewritten from LightGBM"

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        """Write LightGBM's trees as an XGBoost model."""
        path = pipeline.file("xgb.json")
        if not path.exists():
            path.write_text(json.dumps(translated(pipeline.estimator())), encoding="utf-8")

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Read the model."""
        import xgboost

        booster = xgboost.Booster({"nthread": self.threads})
        booster.load_model(str(pipeline.file("xgb.json")))
        call = partial(booster.inplace_predict, validate_features=False)
        return Model(call, call, float32_row, float32_block, _same, lambda raw: float(raw[0]))


def _same(raw: Any) -> Any:
    return raw


def translated(estimator: Any) -> dict[str, Any]:
    """An XGBoost model (its JSON) with the trees of a fitted LightGBM classifier."""
    width = estimator.n_features_in_
    dump = estimator.booster_.dump_model()["tree_info"]
    trees = [_tree(item["tree_structure"], number, width) for number, item in enumerate(dump)]
    model = {
        "gbtree_model_param": {"num_trees": str(len(trees)), "num_parallel_tree": "1"},
        "iteration_indptr": list(range(len(trees) + 1)),
        "tree_info": [0] * len(trees),
        "trees": trees,
    }
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": [],
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {
            "base_score": "[5E-1]",
            "boost_from_average": "1",
            "num_class": "0",
            "num_feature": str(width),
            "num_target": "1",
        },
        "objective": {"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}},
    }
    return {"learner": learner, "version": [3, 2, 0]}


def _tree(root: dict[str, Any], number: int, width: int) -> dict[str, Any]:
    left: list[int] = []
    right: list[int] = []
    above: list[int] = []
    columns: list[int] = []
    limits: list[float] = []
    waiting = [(root, 2147483647)]
    while waiting:
        node, parent = waiting.pop(0)
        place = len(left)
        if above and parent < len(left) and left[parent] == -2:
            left[parent] = place
        elif above and parent < len(left):
            right[parent] = place
        above.append(parent)
        inner = "left_child" in node
        left.append(-2 if inner else -1)
        right.append(-1)
        columns.append(int(node["split_feature"]) if inner else 0)
        limits.append(_above(node["threshold"]) if inner else float(node["leaf_value"]))
        if inner:
            waiting += [(node["left_child"], place), (node["right_child"], place)]
    count = len(left)
    return {
        "base_weights": [0.0] * count,
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": [0] * count,
        "id": number,
        "left_children": left,
        "loss_changes": [0.0] * count,
        "parents": above,
        "right_children": right,
        "split_conditions": limits,
        "split_indices": columns,
        "split_type": [0] * count,
        "sum_hessian": [1.0] * count,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(width),
            "num_nodes": str(count),
            "size_leaf_vector": "1",
        },
    }


def _above(limit: float) -> float:
    """x < this holds for the float32 numbers for which x <= limit does."""
    return float(np.nextafter(np.float32(rounded_down(limit)), np.float32(np.inf)))


CONTESTANT = XgBoost
