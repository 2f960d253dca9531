"""Feedback: rows in service that are worth a label, and estimates once labels are there."""

from runtime.feedback import Estimate, Feedback, FeedbackFolder, FeedbackReport

__all__ = ["Estimate", "Feedback", "FeedbackFolder", "FeedbackReport"]
