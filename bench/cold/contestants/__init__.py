"""Contestants of the cold start: programs that say as JSON how long their first answer takes.

Each is given the folder of a model, and imports its libraries before the clock starts: model.pickle
has the estimator, the rows to answer, and those to import it by; model.onnx is there instead of it
where a session is asked. They are read by the interpreters of other environments.
"""
