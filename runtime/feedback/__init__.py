"""Feedback: rows in service that are worth a label, and estimates once labels are there.

feedback = Feedback(runtime, "fraud", "feedback/fraud", sample=0.01, uncertain=100)
feedback.labels({"5f1c9a0b3d2e-17": "yes"})    # by the id of the answer, whenever it is known
print(feedback.report(segments=("country",)))
feedback.table()                               # columns, labels and weights, for training
"""

from __future__ import annotations

from runtime.feedback.estimates import Estimate, FeedbackReport
from runtime.feedback.folder import FeedbackFolder
from runtime.feedback.recorder import Feedback

__all__ = ["Estimate", "Feedback", "FeedbackFolder", "FeedbackReport"]
