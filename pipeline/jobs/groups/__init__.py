"""Jobs that change groups: parallel work on many groups, plans on disk, steps of a migration."""
