"""Files that a forge, a container or a citation reads: they say of the package what it is."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

import ssl_hub

ROOT = Path(ssl_hub.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_what_the_container_installs_is_what_the_package_asks_for():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    versions = dict(line.split("==") for line in lines if not line.startswith("#"))
    for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["jpeg"]]:
        asked = Requirement(text)
        assert versions[asked.name] in asked.specifier, text


def test_the_container_copies_what_there_is():
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.M) for word in line.split()[:-1]]
    kept = (ROOT / ".containerignore").read_text(encoding="utf-8")
    assert copied and all((ROOT / name).exists() and f"!{name}\n" in kept for name in copied)


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == ssl_hub.__version__ and cited["license"] == PROJECT["license"]


def test_jobs_run_what_there_is():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    steps = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for line in re.findall(r"^make (.*)$", steps, re.M):
        assert set(line.split()) <= set(targets), line
    assert {job["runs-on"] for job in jobs.values()} <= {"ubuntu-latest", "${{ matrix.os }}"}
