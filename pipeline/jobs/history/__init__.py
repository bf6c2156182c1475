"""What jobs compute of the history of commits: lag, verdicts and odd commits."""
