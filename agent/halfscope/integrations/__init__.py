"""Frameworks that own the training loop, one file each.

Importing this package, or any file of it, imports no framework and no torch.
"""

from halfscope.integrations.base import Integration, NotAvailable, found

__all__ = ["Integration", "NotAvailable", "found"]
