"""What all verbs share: options, input files, output, and how a failure is told."""
