"""One file a verb of the core: joins the rooms, as features do for theirs."""
