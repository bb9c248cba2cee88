"""Every block of the documentation says how the tests run it, and settings in it are settings."""

from __future__ import annotations

import re

import pytest
import yaml
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils.plan import deployment_plan
from ansible_collections.vllm_ascend.fleet.tests import documentation
from ansible_collections.vllm_ascend.fleet.tests.unit.support.facts_builder import (
    build_facts,
    case_of,
    shipped_profiles,
    shipped_rules,
)

BLOCKS = documentation.blocks()
SHELL = [block for block in BLOCKS if block.language in documentation.COMMANDS]
SETTINGS = [block for block in BLOCKS if block.language == "yaml" and not block.file]
TEXT = """\
<!-- run: host -->
```shell
uname -a   # the kernel
ls \\
  -l  # all
# nothing
echo '#1'
```

text

```yaml
a: 1
```
<!-- not run: it never ends -->
```bash
yes
```
"""


def test_blocks_are_found_with_their_comments_and_commands():
    shell, settings, endless = documentation.read(TEXT, "x.md")
    assert (shell.where, shell.place, shell.reason) == ("x.md:2", "host", None)
    assert documentation.commands(shell.text) == ["uname -a", "ls -l", "echo '#1'"]
    assert (settings.language, settings.comment, settings.where) == ("yaml", None, "x.md:12")
    assert (endless.reason, endless.place) == ("it never ends", None)


def test_every_document_is_looked_at():
    there = {str(path.relative_to(documentation.ROOT)) for path in documentation.ROOT.glob("docs/*.md")}
    assert there <= set(documentation.DOCUMENTS)


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.where)
def test_commands_are_run_somewhere_or_say_why_not(block):
    assert block.place in documentation.PLACES or block.file or len(block.reason or "") > 10, block.comment
    assert documentation.commands(block.text)


@pytest.mark.parametrize("block", SETTINGS, ids=lambda block: block.where)
def test_settings_are_settings(block):
    """Each block of YAML plans a host of that many NPUs as it is meant to; nothing in it is misspelt."""
    given = yaml.safe_load(block.text)
    if not all(str(name).startswith("vllm_") for name in given):
        pytest.fail(f"{block.where} is no block of settings: give it a comment <!-- file: NAME -->")
    known = yaml.safe_load((documentation.ROOT / "roles/npu_host/vars/main.yml").read_text(encoding="utf-8"))
    given = {name: value for name, value in given.items() if name not in known["__vllm_other_variables"]}
    facts = build_facts(case_of("atlas_a2"), npus=8)
    plan = deployment_plan(facts, given, shipped_profiles(), None, shipped_rules())
    wrong = [p for p in plan["problems"] + plan["warnings"] if p["code"].startswith(("setting_", "extra_", "serve_"))]
    assert wrong == []


def test_playbooks_that_are_named_exist():
    named = set()
    for document in documentation.DOCUMENTS:
        text = (documentation.ROOT / document).read_text(encoding="utf-8")
        named |= set(re.findall(r"ansible-playbook (?:vllm_ascend\.fleet\.|playbooks/)(\w+)", text))
    assert {"site", "plan"} <= named
    there = {path.stem for path in (documentation.ROOT / "playbooks").glob("*.yml")}
    assert named <= there
