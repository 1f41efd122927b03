"""Commands of ``rfdetr-perf``: one file a command, with its arguments."""
