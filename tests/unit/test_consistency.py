"""What is written twice must say the same: role defaults, argument specs, settings table, documentation."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible_collections.vllm_ascend.fleet.plugins.plugin_utils import plain, settings

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())


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
