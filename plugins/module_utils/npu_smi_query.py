# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks npu-smi, as seldom as possible: every call may block for 150 s inside the driver, and none is a harmless one."""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .commands import CommandResult
from .driver import Driver, library_path, npu_smi_candidates
from .npu_smi import InfoTable, parse_info, parse_map, parse_product, parse_remap, table_generations
from .npu_smi_errors import SmiError, classify, complaint
from .sysroot import Sysroot


class SmiAnswer(NamedTuple):
    """What asking npu-smi gave.

    status: ok, missing, hung, error or skipped (not asked, or a replay without its record). table is what
    `npu-smi info` printed, also beside an error; warning is what it complained of without failing. candidates are the
    places looked at; directories and not_executable those of them that are no program.
    """

    status: str
    path: Optional[str]
    timeout_s: int
    candidates: Sequence[str] = ()
    directories: Sequence[str] = ()
    not_executable: Sequence[str] = ()
    table: Optional[InfoTable] = None
    error: Optional[SmiError] = None
    warning: Optional[str] = None

    @property
    def loaded_version(self) -> Optional[str]:
        """The version of the driver that runs, which is not always that of the package on the disk."""
        return self.table.driver_version if self.table else None

    @property
    def loads(self) -> bool:
        """True when npu-smi shows a chip, or hangs, which it does in a driver that is loaded."""
        return self.status == "hung" or bool(self.table and self.table.chips)

    @property
    def generations(self) -> Tuple[str, ...]:
        """The chip generations that the table names."""
        return table_generations(self.table) if self.table else ()

    def facts(self) -> Dict[str, Any]:
        """The record `npu_smi` of the facts."""
        return {
            "status": self.status,
            "path": self.path,
            "version": self.table.tool_version if self.table else None,
            "error_code": self.error.code if self.error else None,
            "error_text": (self.error.text or self.error.meaning) if self.error else None,
        }


class NpuSmi:
    """npu-smi of one host. After one call that ran out of time it is never called again."""

    def __init__(self, sysroot: Sysroot, driver: Driver, timeout_s: int) -> None:
        self.sysroot = sysroot
        self.path = driver.npu_smi_path
        self.install_path = driver.install_path
        self.timeout_s = timeout_s
        self.hung = False

    def info(self, skip: bool = False) -> SmiAnswer:
        """`npu-smi info`, the articles' first check. skip: only look where the program is."""
        candidates = npu_smi_candidates(self.install_path)
        answer = SmiAnswer("skipped", self.path, self.timeout_s, candidates)
        if skip:
            return answer
        if self.path is None:
            return answer._replace(
                status="missing",
                directories=[path for path in candidates if self.sysroot.kind(path) == "directory"],
                not_executable=[path for path in candidates if self.sysroot.kind(path) == "file"],
            )
        result = self._run("info")
        if result is None:
            return answer
        if result.timed_out:
            return answer._replace(status="hung")
        table = parse_info(result.stdout)
        error = classify(result.rc, "\n".join((result.stdout, result.stderr, result.error)))
        if error is None and "+--" not in result.stdout and "+==" not in result.stdout:
            shown = " / ".join(result.text.split("\n"))[:300]
            error = SmiError(None, "its output holds no table", "Run `npu-smi info` on the host and look at it.", shown)
        return answer._replace(
            status="error" if error else "ok", table=table, error=error, warning=complaint(result.stdout)
        )

    def product(self, npu_id: int) -> Optional[str]:
        """The product that npu-smi knows for an NPU (310 and 310P only), None when it does not tell."""
        result = self._run("info", "-t", "product", "-i", str(npu_id))
        return parse_product(result.stdout) if result is not None and result.ok else None

    def physical_ids(self) -> Dict[Tuple[int, int], int]:
        """(NPU id, chip id) → physical id from `npu-smi info -m`; empty where its table has no such column."""
        result = self._run("info", "-m")
        rows: List[Dict[str, Any]] = parse_map(result.stdout) if result is not None and result.ok else []
        return {(row["npu_id"], row["chip_id"]): row["phy_id"] for row in rows if row["phy_id"] is not None}

    def remapped(self, phy_id: int) -> Optional[Tuple[int, int]]:
        """(NPU id, chip id) of the chip at /dev/davinci<phy_id>, None when npu-smi does not tell."""
        result = self._run("info", "-t", "phyid-remap", "-p", str(phy_id))
        return parse_remap(result.stdout) if result is not None and result.ok else None

    def _run(self, *words: str) -> Optional[CommandResult]:
        if self.hung or self.path is None:
            return None
        inherited = os.environ.get("LD_LIBRARY_PATH")
        libraries = library_path(self.install_path)
        environment = {"LD_LIBRARY_PATH": libraries + (":" + inherited if inherited else "")}
        result = self.sysroot.run([self.path, *words], self.timeout_s, env=environment)
        self.hung = bool(result and result.timed_out)
        return result
