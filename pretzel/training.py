"""Recipes of trainings, and their runs: `pretzel train recipe.py`.

with TrainingCache("cache") as cache:
    train(Recipe.read("recipe.py"), cache, Publisher("fraud", runtime))
"""

from runtime.training.cache import TrainingCache
from runtime.training.executors import RayTasks, WorkerProcesses
from runtime.training.publisher import Publisher
from runtime.training.recipe import Recipe, candidate, gate, step
from runtime.training.retraining import Retraining
from runtime.training.training import TrainingOutcome, train

__all__ = [
    "Publisher",
    "RayTasks",
    "Recipe",
    "Retraining",
    "TrainingCache",
    "TrainingOutcome",
    "WorkerProcesses",
    "candidate",
    "gate",
    "step",
    "train",
]
