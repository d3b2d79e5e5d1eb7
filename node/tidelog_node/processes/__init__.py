"""Several nodes of one machine as processes of one command: ``tidelog-node --processes N FILE``.

``plan`` derives the settings of each node from one file, and ``restarts`` says when an ended process runs again (both
pure). ``supervisor`` runs the processes.
"""
