"""Make or download the missing files of a run's datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym import paths
from nemo_gym.config.models import DatasetConfig, RunConfig, ServerConfig
from nemo_gym.config.view import view_of, viewing
from nemo_gym.data.benchmarks import benchmark_of, command_to_prepare
from nemo_gym.data.gather import missing_file
from nemo_gym.data.made import record_arguments, why_outdated
from nemo_gym.data.permission import DownloadNeeded, may_download
from nemo_gym.data.script_process import run_script
from nemo_gym.data.scripts import Script, log_of
from nemo_gym.errors import DataError, UserError

DOWNLOAD = "Add --download to download it."


@dataclass(frozen=True)
class Obtainer:
    """A provider of the files of a run's datasets. It makes or downloads files that are missing."""

    run: RunConfig
    notice: Callable[[str], None]
    may_download: bool = True
    hub: str | None = None
    """The only hub from which to download. By default, each dataset is downloaded from its own source."""
    remade: set[Path] = field(default_factory=set)
    """The files that were made again. Their earlier metrics are outdated."""

    def path_of(self, agent: ServerConfig, dataset: DatasetConfig) -> Path:
        """Return the path of a dataset's file. Make or download the file if it is missing.

        Make it again if its `prepare_args` or its inputs have changed. Raise `DataError` if it cannot be made, or if
        it must be downloaded and `may_download` is False.
        """
        found = paths.find(dataset.jsonl_fpath, Path.is_file)
        if found is not None:
            is_made = dataset.type == "benchmark" or (dataset.prepare_script and not dataset.source)
            reason = why_outdated(found, dataset.prepare_args) if is_made else None
            if reason is None:
                return found
            self.notice(f"{found} {reason}")
        with viewing(view_of(self.run)), may_download(self.may_download):
            try:
                path = self._obtained(agent, dataset)
            except DownloadNeeded as needed:
                advice = str(needed) if dataset.type == "benchmark" else f"{needed} {DOWNLOAD}"
                if found is None:
                    raise DataError(missing_file(agent, dataset, advice)) from needed
                raise DataError(f"dataset '{dataset.name}': {found} {reason}. {advice}") from needed
        if found is not None:
            self.remade.add(path)
        return path

    def _obtained(self, agent: ServerConfig, dataset: DatasetConfig) -> Path:
        if dataset.type == "benchmark":
            benchmark = benchmark_of(agent, dataset)
            if not self.may_download:
                raise DownloadNeeded(f"Create it with: {command_to_prepare(benchmark.name)}")
            self.notice(f"preparing benchmark '{dataset.name}' …")
            return benchmark.prepare()
        if dataset.prepare_script and not dataset.source:
            return self._made(agent, dataset, dataset.prepare_script)
        # Import the module here, because it imports httpx, which is not needed if all files exist.
        from nemo_gym.data.hubs import described, download

        target = target_of(dataset.jsonl_fpath)
        if self.may_download:
            download(dataset, target, self.run.plain, hub=self.hub, notice=self.notice)
            return target
        if dataset.source:
            raise DownloadNeeded(f"It comes from {described(dataset, dataset.source, target)}.")
        raise DataError(missing_file(agent, dataset, "Copy it there, or add a source."))

    def _made(self, agent: ServerConfig, dataset: DatasetConfig, named: str) -> Path:
        program = paths.find(named, Path.is_file)
        if program is None:
            raise DataError(missing_file(agent, dataset, f"Its script '{named}' does not exist, either."))
        target = target_of(dataset.jsonl_fpath)
        self.notice(f"making dataset '{dataset.name}' with {program} …")
        script = Script(program, log_of(target), dataset.prepare_dependencies)
        try:
            run_script(script, {**dataset.prepare_args, "output": target})
        except DownloadNeeded:
            raise
        except UserError as error:
            raise DataError(f"dataset '{dataset.name}': {error}") from error
        if not target.is_file():
            raise DataError(f"{program}: prepare() did not write its output, {target}. Correct the script.")
        record_arguments(target, dataset.prepare_args)
        return target


def target_of(relative: str) -> Path:
    """Return the path at which to write a dataset's file.

    Choose the search root that has the deepest existing folder of the path. Choose the installation only if it has at
    least two levels of the path, such as `resources_servers/mcqa`. Otherwise a path in `data/` would select the
    installation, because the installation has a folder `data/`.
    """
    path = Path(relative)
    for folder in path.parents:
        found = paths.find(folder, Path.is_dir)
        if found is not None and not (len(folder.parts) == 1 and found == paths.INSTALL_ROOT / folder):
            return found / path.relative_to(folder)
    return path
