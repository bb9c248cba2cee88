"""bundle_masking: what is private goes, what tells hosts apart stays, and what was equal stays equal."""

from __future__ import annotations

import ipaddress
import json

import pytest
from ansible_collections.vllm_ascend.fleet.plugins.module_utils import bundle_documents, bundle_masking, instance_state
from ansible_collections.vllm_ascend.fleet.plugins.module_utils.bundle_masking import Masker

# Every form here must come back as it is.
KEPT = [
    "| npu-smi 23.0.2.1                 Version: 23.0.2.1                                |",
    "Version=7.7.0.1.231", "package_version=25.0.rc1.1", "firmware: 7.1.0.3", '{"version": "1.2.3.4"}', "v1.2.3.4",
    "0000:81:00.0", "0000:9D:00.0 bus", "PCIe Bus Info                  : 0000:F1:00.0",
    "5.10.0-216.0.0.115.oe2203sp4.aarch64", "4.19.90-2107.6.0.0192.8.oe1.bclinux.aarch64", "20.10.24+dfsg1",
    "0.0.0.0:8000", "127.0.0.1", "127.255.0.1:80", "::", "::1", "[::]:8000", "[::1]:8000", "255.255.255.0",
    "0::/user.slice", "12:pids:/docker/abc", "1:name=systemd:/", "c 236:* rwm", "19e5:d802:0200", "12:30:45",
    "2026-03-01T10:00:00.1Z",
    "quay.io/ascend/vllm-ascend:v0.23.0-310p@sha256:" + "a2" * 32, "quay.io/x/image:1.2.3.4", "sha256:" + "0d" * 32,
    "docker://quay.io/x/y@sha256:" + "0d" * 32, "--max-num-batched-tokens 4096", "--tokenizer-mode auto",
    "max_tokens=16", "eos_token_id: 151643", "/usr/lib/x86_64-linux-gnu/libyaml-0.so.2.0.9", "192.0.2.7", "2001:db8::7",
    "00:00:5e:00:53:01", "Board ID                       : 0x1b", "Serial Number : NA", "Serial Number : xxx",
    "user@host.example", "docker-proxy", "vllm-ascend.service", "DDie ID : 00000000 00000000", "http://proxy:3128",
    "ExecStart=/usr/bin/docker run --env-file /etc/vllm-ascend/ascend.env", "/dev/davinci10 c 236:10",
    "| 0     910B3               | OK            | 95.0        40                0    / 0             |",
    "xxxxx:xxxxx@proxy:3128", "fe80 interface", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "",
]  # fmt: skip
# (text, what must be gone)
GONE = [
    ("inet 10.1.2.3/24 brd 10.1.2.255", ["10.1.2.3", "10.1.2.255"]),
    ("10.0.0.1-10.0.0.9", ["10.0.0.1", "10.0.0.9"]),
    ("node-10.1.2.3, 10.1.2.4.", ["10.1.2.3", "10.1.2.4"]),
    ("http://10.1.2.3:8000/v1 and 10.1.2.3.nip.io", ["10.1.2.3"]),
    ("addr:10.1.2.3 HWaddr:3c:fa:43:0b:7e:91", ["10.1.2.3", "3c:fa:43:0b:7e:91"]),
    ("10.9.9.9:5000/x/image:1.2.3.4", ["10.9.9.9"]),
    ("inet6 fd12:3456::77/64, addr:fe80::3efa:43ff:fe0b:7e91%eth0.", ["fd12:3456::77", "3efa:43ff"]),
    ("[fd12::1]:8000 ::ffff:10.1.2.3", ["fd12::1", "10.1.2.3"]),
    ("eid 0000:0000:0000:0000:0010:0000:dfdf:0001", ["dfdf"]),
    ("3C-FA-43-0B-7E-91 interface:3c:fa:43:0b:7e:92", ["3C-FA-43-0B-7E-91", "7e:92"]),
    ("MAC Address : 3cfa430b7e91, mac=3cfa.430b.7e92", ["3cfa430b7e91", "430b.7e92"]),
    ("GUID 00:11:22:33:44:55:66:77:88:99", ["33:44"]),
    ("Serial Number                  : 2102AB", ["2102AB"]),
    ("|   SN : 2102AB     |", ["2102AB"]),
    ("VDie ID : 0A1B2C3D 11111111", ["0A1B2C3D", "11111111"]),
    ("http://bob:hunter2@proxy:3128", ["bob", "hunter2"]),
    ("http://bob:s3cr/et@in@proxy:3128/x", ["bob", "s3cr", "in@"]),
    ("proxy = bob:hunter2@proxy:3128", ["bob", "hunter2"]),
    ("--api-key abc def --port 1", ["abc", "def"]),
    ("--api-key=abc", ["abc"]),
    ("vllm serve m --api-key \\\n  abc \\\n  --port 1", ["abc"]),
    ("--hf-token 'abc'", ["abc"]),
    ("VLLM_API_KEY=abc", ["abc"]),
    ("password: hunter2", ["hunter2"]),
    ('"apiKey": "abc"', ["abc"]),
    ("Authorization: Bearer abcdefgh", ["abcdefgh"]),
    ("curl -H 'authorization: Basic YWJjZGVm'", ["YWJjZGVm"]),
    ("it was hf_AbCdEfGhIjKl or sk-12345678", ["hf_Ab", "sk-12"]),
    ("-e A=secret1 --env 'B=secret 2' --env=\"C=secret3\"", ["secret1", "secret 2", "secret3"]),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", ["MIIE"]),
    ("-----BEGIN PRIVATE KEY-----\nMIIEcut", ["MIIEcut"]),
    ("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB ops", ["AAAAB3"]),
    ("on rack1-a2.northwind.corp and RACK1-A2, rack2.northwind.corp", ["rack1-a2", "RACK1-A2", "northwind"]),
    ("for Project Zephyr.", ["Zephyr"]),
]  # fmt: skip


def masker():
    return Masker(["rack1-a2.northwind.corp"], ["Project Zephyr"])


@pytest.mark.parametrize("text", KEPT)
def test_what_is_not_private_stays(text):
    made = masker()
    assert made.text(text) == text
    assert not any(made.counts.values())


@pytest.mark.parametrize(("text", "gone"), GONE, ids=[text[:30] for text, _gone in GONE])
def test_what_is_private_goes_and_is_counted(text, gone):
    made = masker()
    masked = made.text(text)
    assert [word for word in gone if word.lower() in masked.lower()] == []
    assert sum(made.counts.values()) > 0
    made.forget()
    again = made.text(masked)
    assert again == masked, "what is masked stays as it is"


def test_equal_values_get_equal_names_and_others_do_not():
    made = masker()
    text = made.text("10.1.2.3 10.1.2.4 10.1.2.3 fd12::1 fd12:0::1 3c:fa:43:0b:7e:91 3C-FA-43-0B-7E-91").split()
    assert text[0] == text[2] != text[1]
    assert text[3] == text[4]
    assert text[5] == text[6]
    assert all(ipaddress.ip_address(word) in ipaddress.ip_network("192.0.2.0/24") for word in text[:3])


def test_addresses_for_documentation_that_a_host_uses_are_not_given_to_others():
    made = masker()
    text = "10.1.2.3 192.0.2.1 2001:db8::1 fd12::1 00:00:5e:00:53:01 3c:fa:43:0b:7e:91"
    made.text(text)
    made.forget()
    words = made.text(text).split()
    assert words[1:3] == ["192.0.2.1", "2001:db8::1"] and words[4] == "00:00:5e:00:53:01"
    assert len(set(words)) == 6


def test_more_addresses_than_a_range_has():
    made = masker()
    names = {made.ip(str(ipaddress.ip_address("10.0.0.0") + number)) for number in range(1, 2000)}
    assert len(names) == 1999
    assert len({made.mac(f"3cfa43{number:06x}") for number in range(600)}) == 600


def test_a_secret_that_is_shown_elsewhere_is_masked_in_every_text():
    made = masker()
    text = "the key hunter22 was refused"
    assert made.text(text) == text
    made.variable("VLLM_API_KEY", "hunter22")
    assert "hunter22" not in made.text(text)
    for common in ("ascend", "/root/.cache", "short"):
        made.variable("VLLM_API_KEY", common)
        assert made.text(f"x {common} y") == f"x {common} y"


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("ASCEND_VISIBLE_DEVICES", "0-3", True),
        ("HCCL_BUFFSIZE", "1024", True),
        ("PATH", "/usr/bin:/bin", True),
        ("HCCL_IF_IP", "10.1.2.3", False),
        ("ASCEND_HUB_TOKEN", "abc", False),
        ("HF_TOKEN", "abc", False),
        ("MY_SETTING", "abc", False),
        ("AWS_SECRET_ACCESS_KEY", "abc", False),
        ("MY_SETTING", "", True),
    ],
)
def test_variables(name, value, kept):
    assert (masker().variable(name, value) == value) is kept


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("VLLM_API_KEY", True), ("--api-key", True), ("hf-token", True), ("apiKey", True), ("PGPASSWORD", False),
        ("db_password", True), ("passwd", True), ("privateKey", True), ("token", True), ("auth", True),
        ("eos_token_id", False), ("max_tokens", False), ("tokenizer", False), ("ssl_key_file", False), ("key", False),
        ("KEYBOARD", False), ("author", False), ("num_key_value_heads", False), ("monkey", False), ("", False),
    ],
)  # fmt: skip
def test_names_of_secrets(name, secret):
    assert bundle_masking.is_secret_name(name) is secret


def test_words_of_a_command_line():
    argv = [
        "docker",
        "run",
        "-e",
        "A=b",
        "--env=ASCEND_X=1",
        "--env",
        "INHERITED",
        "image",
        "--api-key",
        "k1",
        "k2",
        "--port",
        "8000",
    ]
    words = masker().words(argv)
    assert [words[place] for place in (0, 1, 2, 4, 5, 6, 7, 8, 11, 12)] == [
        "docker", "run", "-e", "--env=ASCEND_X=1", "--env", "INHERITED", "image", "--api-key", "--port", "8000",
    ]  # fmt: skip
    assert words[3].startswith("A=masked-") and words[9].startswith("masked-") and words[10] != words[9]


def test_an_env_file_keeps_its_form_and_its_digests_agree():
    made = masker()
    text = '# note hunter2\nVLLM_API_KEY=sk-1 2"3\nEMPTY=\n\nCR=x\r\n'
    masked = made.env_file(text)
    values = instance_state.parse_env(masked)
    assert set(values) == {"VLLM_API_KEY", "EMPTY", "CR"} and values["EMPTY"] == ""
    assert "hunter2" not in masked and "sk-1" not in masked
    digest = instance_state.secret_digest("VLLM_API_KEY", 'sk-1 2"3')
    document = made.document({"secrets": [{"name": "VLLM_API_KEY", "digest": digest}]})
    assert document["secrets"][0]["digest"] == instance_state.secret_digest("VLLM_API_KEY", values["VLLM_API_KEY"])


def test_only_listening_sockets_are_kept_with_other_addresses():
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   {0}: {1} {2} {3} 00000000:00000000 00:00000000 00000000     0        0 {0} 1 0 100 0 0 10 0\n"
    text = (
        head
        + row.format(1, "0302010A:1F40", "00000000:0000", "0A")
        + row.format(2, "0302010A:0016", "0902010A:C350", "01")
    )
    text += row.format(3, "00000000:0016", "00000000:0000", "0A") + row.format(
        4, "0100007F:0CEA", "00000000:0000", "0A"
    )
    made = masker()
    masked, dropped = bundle_masking.socket_rows(text, made.ip)
    assert dropped == 1
    assert masked.startswith(head)
    assert [line.split()[1] for line in masked.splitlines()[1:]] == ["010200C0:1F40", "00000000:0016", "0100007F:0CEA"]
    six = row.format(1, "B80D0120000000000000000001000000:1F40", "0" * 32 + ":0000", "0A")
    six += row.format(2, "563412FD000000000000000077000000:1F41", "0" * 32 + ":0000", "0A")
    six += row.format(3, "0000000000000000FFFF00000302010A:1F42", "0" * 32 + ":0000", "0A")
    masked, dropped = bundle_masking.socket_rows(six, made.ip)
    addresses = [line.split()[1] for line in masked.splitlines()]
    assert dropped == 0
    assert addresses[0] == "B80D0120000000000000000001000000:1F40"
    assert addresses[1].startswith("B80D0120") and addresses[1] != addresses[0]
    assert addresses[2] == "0000000000000000FFFF0000010200C0:1F42"


def test_documents_are_cut_to_what_is_read():
    document = {
        "Id": "x",
        "Config": {"Env": ["A=b"], "Hostname": "h", "Labels": {"owner": "me"}},
        "Path": "p",
        "State": 7,
    }
    assert bundle_documents.cut([document, 7], bundle_documents.INSPECT) == [
        {"Id": "x", "Config": {"Env": ["A=b"], "Labels": {}}, "State": {}}, {},
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["{", "", "[" * 200 + "]" * 200, '{"a": "hunter2'])
def test_json_that_cannot_be_read_is_not_stored(text):
    for path in ("/var/lib/vllm-ascend/a/committed.json", "/etc/docker/daemon.json", "/x/hostconfig.json"):
        content, _dropped = bundle_documents.masked_file(masker(), path, text.encode())
        assert b"hunter2" not in content
        with pytest.raises(ValueError):
            json.loads(content.decode())


def test_long_lines_take_no_long_time():
    made = masker()
    for line in ("a" * 200_000, "1." * 100_000, "-" * 200_000, "a:" * 50_000, "=" * 200_000, "a.b=" * 50_000):
        assert len(made.text(line)) > 1000
