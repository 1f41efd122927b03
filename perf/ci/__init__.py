"""What the workflows run: plan, check, fetch, judge, comment, refresh. No workflow holds logic of its own."""
