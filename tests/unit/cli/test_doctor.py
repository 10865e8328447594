"""`penstock doctor`: what is there, what is missing, and what is broken."""

import pytest

from penstock.calibration import machine
from penstock.cli import doctor
from penstock.cli.doctor import Finding, cache, findings

CPUINFO = "processor\t: 0\nmodel name\t: Testchip 9\nflags\t\t: fpu sse4_2 avx2\n\nprocessor\t: 1\nmodel name\t: Other\n"


def test_the_first_processor_is_read_from_cpuinfo(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO)
    info = machine.cpu_info(path)
    assert info["model name"] == "Testchip 9"
    assert "avx2" in info["flags"].split()


def test_a_system_without_cpuinfo_has_no_facts(tmp_path):
    assert machine.cpu_info(tmp_path / "none") == {}


def test_facts_name_the_processor_and_the_versions():
    facts = machine.facts()
    assert facts["cpu"]
    assert facts["packages"]["pyarrow"]
    assert machine.installed_version("no-such-distribution") is None


@pytest.mark.parametrize(
    ("make", "state", "text"),
    [
        (lambda path: None, "info", "in memory only"),
        (lambda path: path / "new", "ok", "not made yet"),
        (lambda path: path, "ok", "1 files, 2 KB"),
        (lambda path: path / "kernel.o", "bad", "cannot be written"),
    ],
    ids=["off", "new", "used", "a file"],
)
def test_the_state_of_the_kernel_cache_is_told(tmp_path, make, state, text):
    (tmp_path / "kernel.o").write_bytes(b"x" * 2_048)
    finding = cache(make(tmp_path))
    assert finding.state == state
    assert text in finding.text


def test_a_kernel_cache_that_another_user_could_replace_is_told(tmp_path):
    directory = tmp_path / "shared" / "kernels"
    directory.mkdir(parents=True, mode=0o700)
    directory.parent.chmod(0o777)
    finding = cache(directory)
    assert finding.state == "info"
    assert f"in memory only: {directory.parent}, which holds" in finding.text


def test_a_broken_engine_is_a_finding_and_exit_code_1(penstock, monkeypatch):
    def broken():
        raise RuntimeError("LLVM is [gone]")

    monkeypatch.setattr(doctor, "small_query", broken)
    result = penstock("doctor")
    assert result.exit_code == 1
    assert "FAIL engine" in result.output
    assert "LLVM is [gone]" in result.output


def test_a_missing_requirement_is_a_failure_and_a_missing_option_is_not(monkeypatch):
    monkeypatch.setattr(doctor.machine, "installed_version", lambda name: None)
    states = {finding.subject: finding.state for finding in doctor.packages()}
    assert states["pyarrow"] == "bad"
    assert states["polars"] == "info"


def test_java_is_optional(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.java() == Finding("info", "java", "not found; only running on Spark needs it")


def test_every_finding_names_its_subject():
    subjects = [finding.subject for finding in findings()]
    assert len(subjects) == len(set(subjects))
    assert {"python", "processor", "memory bandwidth", "java", "kernel cache", "engine"} <= set(subjects)
