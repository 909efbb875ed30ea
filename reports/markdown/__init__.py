"""A report as Markdown, for pull requests and issues. May import the model and `words/`."""
