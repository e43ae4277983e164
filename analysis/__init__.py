"""What relevance means: scores, agreement of relevance and rationale, reports."""
