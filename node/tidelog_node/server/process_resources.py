"""The process's limit of open files, set for a node, which needs several per segment and one per connection."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

_MIN_FILES = 16_384


def raise_open_files_limit() -> None:
    """Raise the soft limit to the hard one, and warn if that is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            logger.warning("The limit of open files stays at %d: %s", soft, error)
    if soft != resource.RLIM_INFINITY and soft < _MIN_FILES:
        logger.warning("No more than %d files can be open: raise the hard limit (ulimit -Hn) to %d", soft, _MIN_FILES)
