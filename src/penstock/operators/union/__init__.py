"""The rows of several inputs in order of arrival."""
