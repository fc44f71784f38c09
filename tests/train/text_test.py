# SPDX-License-Identifier: Apache-2.0
"""The text, its batches, and checkpoint files: what needs no other rank."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the training example needs PyTorch")

from deepseek import checkpoint, data  # noqa: E402
from deepseek.options import OptionError  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for index in range(200):
        name = tmp_path / f"module_{index:03d}.py"
        name.write_text(f"value_{index:03d} = {index:03d}\n")
    for skipped in ("site-packages", "test"):
        (tmp_path / skipped).mkdir()
        (tmp_path / skipped / "other.py").write_text("not_of_the_library = 1\n")
    (tmp_path / "data.txt").write_text("not_python\n")
    return tmp_path


def text(tensor: torch.Tensor) -> str:
    return bytes(tensor.tolist()).decode()


def test_each_file_is_either_trained_on_or_held_out(folder: Path) -> None:
    corpus = data.read_corpus(folder)
    train, held_out = (set(text(part).splitlines()) for part in (corpus.train, corpus.held_out))
    assert not train & held_out
    assert train | held_out == {f"value_{index:03d} = {index:03d}" for index in range(200)}
    assert 1 <= len(held_out) <= 30


def test_the_text_is_the_same_each_time_and_its_digest_tells_changes(folder: Path) -> None:
    first, again = data.read_corpus(folder), data.read_corpus(folder)
    assert torch.equal(first.train, again.train)
    assert first.digest == again.digest
    (folder / "module_000.py").write_text("value_000 = 999\n")
    assert data.read_corpus(folder).digest != first.digest


def test_shares_of_ranks_make_the_global_batch(folder: Path) -> None:
    corpus = data.read_corpus(folder)
    inputs, targets = data.batch_of(corpus, 3, 0, 8, 16, slice(0, 8))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    shares = [data.batch_of(corpus, 3, 0, 8, 16, slice(at, at + 2))[0] for at in range(0, 8, 2)]
    assert torch.equal(torch.cat(shares), inputs)
    assert not torch.equal(data.batch_of(corpus, 4, 0, 8, 16, slice(0, 8))[0], inputs)
    assert not torch.equal(data.batch_of(corpus, 3, 1, 8, 16, slice(0, 8))[0], inputs)


def test_windows_reach_the_last_byte_and_not_beyond(folder: Path) -> None:
    corpus = data.read_corpus(folder)
    length = corpus.train.numel()
    inputs, targets = data.batch_of(corpus, 0, 0, 4, length - 1, slice(0, 4))
    assert torch.equal(inputs[3], corpus.train[:-1].long())
    assert torch.equal(targets[3], corpus.train[1:].long())
    held, _ = data.held_out_of(corpus, 16, 5, slice(0, None))
    assert torch.equal(held[-1], corpus.held_out[-17:-1].long())


def test_sequences_longer_than_the_text_are_refused(folder: Path) -> None:
    corpus = data.read_corpus(folder)
    with pytest.raises(OptionError, match="bytes of text here"):
        data.check_length(corpus, corpus.held_out.numel())
    data.check_length(corpus, corpus.held_out.numel() - 1)


def test_a_checkpoint_that_cannot_be_written_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.write(tmp_path, 1, {"step": 1})

    def fails(_state: object, file: object) -> None:
        file.write(b"half of it")  # type: ignore[attr-defined]
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="no space"):
        checkpoint.write(tmp_path, 2, {"step": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000001.pt"]


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 30, 4):
        checkpoint.write(tmp_path, step, {"step": step})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step_00000004.pt",
        "step_00000030.pt",
    ]


def test_a_checkpoint_of_other_settings_is_refused_by_name() -> None:
    state = {"settings": {"seed": 0, "batch": 16}}
    checkpoint.check_settings(state, {"seed": 0, "batch": 16})
    with pytest.raises(OptionError, match="made with batch 16, not 8"):
        checkpoint.check_settings(state, {"seed": 0, "batch": 8})
