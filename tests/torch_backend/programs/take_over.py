# SPDX-License-Identifier: Apache-2.0
"""An unchanged program for gloo, by the library that is named: a model trained a little.

It prints, from rank 0, what carries the group of torch.distributed and the weights that came out.
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist

SAMPLES = 32


class Model(torch.nn.Module):
    """Answers as transformers' models do: the loss, where it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        )

    def forward(self, x, labels=None):
        y = self.layers(x).squeeze(1)
        if labels is None:
            return {"y": y}
        return {"loss": torch.nn.functional.mse_loss(y, labels), "y": y}


class Samples(torch.utils.data.Dataset):
    """The sum of four numbers."""

    def __init__(self) -> None:
        self.x = torch.rand(SAMPLES, 4, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.x[index].sum()}


def torch_alone() -> Model:
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    group = dist.new_group(list(range(dist.get_world_size())), backend="gloo")
    assert dist.get_backend() == dist.get_backend(group) == "gloo"
    dist.monitored_barrier(group)
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, dist.get_rank(), group=group)
    assert found == list(range(dist.get_world_size()))
    model = Model()
    ddp = DistributedDataParallel(model, process_group=group)
    samples = Samples()
    for _ in range(4):
        of_rank = range(dist.get_rank(), SAMPLES, dist.get_world_size())
        batch = torch.utils.data.default_collate([samples[i] for i in of_rank])
        ddp(**batch)["loss"].backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    return model


def accelerate() -> Model:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(Samples(), batch_size=4)
    ours, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(ours(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
    assert accelerator.gather(torch.tensor([accelerator.process_index])).tolist() == [0, 1]
    return model


def lightning() -> Model:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _index):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=lightning.pytorch.strategies.DDPStrategy(process_group_backend="gloo"),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.gettempdir(),
    )
    trainer.fit(module, torch.utils.data.DataLoader(Samples(), batch_size=4))
    return module.model


def transformers() -> Model:
    import transformers

    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            ddp_backend="gloo",
            max_steps=4,
            per_device_train_batch_size=4,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        transformers.Trainer(model=model, args=arguments, train_dataset=Samples()).train()
    return model


def main() -> None:
    torch.set_num_threads(1)
    model = {f.__name__: f for f in (torch_alone, accelerate, lightning, transformers)}[
        sys.argv[1]
    ]()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    of_all = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(of_all, weights)
    assert all(torch.equal(weights, other) for other in of_all)
    started = torch.cat([parameter.detach().flatten() for parameter in Model().parameters()])
    assert not torch.equal(weights, started)
    carrier = dist.group.WORLD._get_backend(torch.device("cpu")).name()
    if dist.get_rank() == 0:
        found = {"carrier": carrier, "says": dist.get_backend(), "weights": weights.tolist()}
        print(json.dumps(found), flush=True)
    del model
    dist.destroy_process_group()


main()
