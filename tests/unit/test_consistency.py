"""What is written twice must say the same: role defaults, argument specs, settings table, documentation."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import helper_main
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain, settings

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
# Variables of playbooks, which no role has.
PLAYBOOKS = {"vllm_ascend", "vllm_build_host", "vllm_hosts", "vllm_instance_names"}


def load(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def options(role):
    return load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]


@pytest.mark.parametrize("role", ROLES)
def test_defaults_and_argument_specs_agree(role):
    defaults = load(f"roles/{role}/defaults/main.yml")
    assert set(defaults) == set(options(role))
    assert defaults == {name: spec.get("default") for name, spec in options(role).items()}


def test_a_variable_that_two_roles_have_is_the_same_in_both():
    seen = {}
    for role in ROLES:
        for name, spec in options(role).items():
            same = {key: value for key, value in spec.items() if key != "description"}
            assert seen.setdefault(name, same) == same, (role, name)


def test_the_settings_table_agrees_with_the_role():
    specs = options("npu_host")
    table = {setting.name: setting for setting in settings.SETTINGS}
    passed = set(load("roles/npu_host/vars/main.yml")["__vllm_settings"])
    assert set(table) == passed
    assert {name: plain.plain(s.default) for name, s in table.items()} == {n: specs[n].get("default") for n in table}


def test_every_option_of_every_role_is_described():
    assert all(spec.get("description") and spec.get("type") for role in ROLES for spec in options(role).values())


def test_every_problem_and_warning_is_in_the_documentation():
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    code = re.compile(r"""(?:\.problem|\.warn|\bproblem|\breport)\(\s*"([a-z0-9_]+)"|\bcode="([a-z_]+)\"""")
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "plugins").rglob("*.py"))]
    codes = {name for source in sources for pair in code.findall(source) for name in pair if name}
    rules = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "roles/npu_host/vars").rglob("*.yml"))]
    codes |= {name for rule in rules for name in re.findall(r"\b(?:version_)?code: ([a-z0-9_]+)", rule)}
    codes |= set(plain.ACCEPTABLE)
    assert len(codes) > 60
    assert sorted(name for name in codes if f"`{name}`" not in text) == []


def test_every_role_variable_of_the_documentation_exists():
    known = {name for role in ROLES for name in options(role)} | PLAYBOOKS
    plugins = {path.stem for path in (ROOT / "plugins").rglob("*.py")} | set(ROLES)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        found = set(re.findall(r"\bvllm_[a-z0-9_]+", path.read_text(encoding="utf-8")))
        assert found <= known | plugins, (path.name, sorted(found - known - plugins))


def test_every_variable_of_the_roles_is_known_to_the_search_for_misspelt_ones():
    variables = load("roles/npu_host/vars/main.yml")
    known = set(variables["__vllm_settings"]) | set(variables["__vllm_other_variables"])
    assert {name for role in ROLES for name in options(role)} <= known


def test_the_version_is_the_same_everywhere_and_in_the_changelog():
    """The changelog's data is read, too: its own lint says nothing of a file that is no YAML."""
    version = load("galaxy.yml")["version"]
    assert version == helper_main.VERSION
    assert f"vllm_ascend-fleet-{version}.tar.gz" in (ROOT / "README.md").read_text(encoding="utf-8")
    releases = load("changelogs/changelog.yaml")["releases"]
    assert max(releases, key=lambda name: [int(part) for part in name.split(".")]) == version
    assert f"\nv{version}\n" in (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
