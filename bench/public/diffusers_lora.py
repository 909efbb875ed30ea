"""In the style of diffusers' train_text_to_image_lora.py: a UNet with LoRA, Accelerate, no downloads."""

import argparse

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_scheduler
from peft import LoraConfig
from torch.nn import functional as F


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resolution", type=int, default=16)
    parser.add_argument("--train_batch_size", type=int, default=16, help="Batch size (per device).")
    parser.add_argument("--num_train_epochs", type=int, default=100)
    parser.add_argument("--max_train_steps", type=int, default=None)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--lr_scheduler", type=str, default="constant")
    parser.add_argument("--mixed_precision", type=str, default=None)
    parser.add_argument("--dataloader_num_workers", type=int, default=0)
    parser.add_argument("--rank", type=int, default=4)
    return parser.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        mixed_precision=args.mixed_precision,
        cpu=not torch.cuda.is_available(),
    )
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
    unet = UNet2DConditionModel(
        sample_size=args.resolution,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        cross_attention_dim=32,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    unet.requires_grad_(False)
    unet.add_adapter(
        LoraConfig(
            r=args.rank,
            lora_alpha=args.rank,
            init_lora_weights="gaussian",
            target_modules=["to_k", "to_q", "to_v", "to_out.0"],
        )
    )
    if args.gradient_checkpointing:
        unet.enable_gradient_checkpointing()
    lora_layers = [parameter for parameter in unet.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(lora_layers, lr=args.learning_rate)
    train_dataset = [
        {"latents": torch.randn(4, args.resolution, args.resolution), "text": torch.randn(7, 32)}
        for _ in range(1500)
    ]

    def collate_fn(examples):
        return {
            "latents": torch.stack([example["latents"] for example in examples]),
            "encoder_hidden_states": torch.stack([example["text"] for example in examples]),
        }

    train_dataloader = torch.utils.data.DataLoader(
        train_dataset,
        shuffle=True,
        collate_fn=collate_fn,
        batch_size=args.train_batch_size,
        num_workers=args.dataloader_num_workers,
    )
    lr_scheduler = get_scheduler(args.lr_scheduler, optimizer=optimizer)
    unet, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(
        unet, optimizer, train_dataloader, lr_scheduler
    )
    steps = args.max_train_steps or args.num_train_epochs * len(train_dataloader)
    global_step = 0
    for _ in range(args.num_train_epochs):
        unet.train()
        for batch in train_dataloader:
            with accelerator.accumulate(unet):
                latents = batch["latents"]
                noise = torch.randn_like(latents)
                timesteps = torch.randint(0, 1000, (latents.shape[0],), device=latents.device)
                noisy = noise_scheduler.add_noise(latents, noise, timesteps)
                predicted = unet(noisy, timesteps, batch["encoder_hidden_states"]).sample
                loss = F.mse_loss(predicted.float(), noise.float(), reduction="mean")
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(lora_layers, 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                global_step += 1
                if global_step % 50 == 0:
                    print(global_step, loss.detach().item())
            if global_step >= steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
