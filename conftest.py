"""Makes `ansible_collections.vllm_ascend.fleet` importable from a plain checkout.

A link `.ansible/collections/ansible_collections/vllm_ascend/fleet` to the checkout lets pytest, ansible-playbook,
molecule and ansible-lint find the collection under its own name, without Galaxy.
"""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent
COLLECTIONS = ROOT / ".ansible" / "collections"


def link_collection() -> None:
    """Create the link (again) where it is missing or leads elsewhere."""
    link = COLLECTIONS / "ansible_collections" / "vllm_ascend" / "fleet"
    if link.is_symlink() and link.resolve() == ROOT:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(ROOT)


link_collection()
if str(COLLECTIONS) not in sys.path:
    sys.path.insert(0, str(COLLECTIONS))
