"""Models in pickles and files of joblib, read as data: no module is imported and nothing is called.

read_pickle(data)        the object: arrays, lists, texts, and stand-ins with attributes
"""

from flour.pickles.file import read_pickle

__all__ = ["read_pickle"]
