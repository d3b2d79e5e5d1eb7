"""The log of a server's process: its lines, its levels, and a limit on the lines that peers can cause."""
