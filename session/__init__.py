"""One file a verb: the only code that joins the rooms."""
