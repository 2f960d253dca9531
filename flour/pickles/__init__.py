"""Models in pickles, in files of joblib and of skops: data, for which nothing is run or imported.

read_pickle(data)        the object: arrays, lists, texts, and stand-ins with attributes
parted(path)             the file and the key of "models.pkl#model"
is_pickle(head)          whether a file that begins so may be one
"""

from flour.pickles.file import is_pickle, parted, read_pickle

__all__ = ["is_pickle", "parted", "read_pickle"]
