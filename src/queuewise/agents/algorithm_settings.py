"""Settings of the learning algorithms: part of the settings of training."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from queuewise.config import Config

ScheduleName = Literal["constant", "linear", "exponential", "cosine", "warmup_cosine"]

MOST_ENVS, MOST_STEPS = 100_000, 1_000_000  # of an update


class PpoSettings(Config):
    """Proximal policy optimisation (Schulman et al., 2017)."""

    num_envs: int = Field(default=64, ge=1, le=MOST_ENVS, description="environments played in parallel")
    steps: int = Field(default=128, ge=1, le=MOST_STEPS, description="steps per environment between updates")
    workers: int = Field(
        default=2,
        ge=1,
        description="processes, each with its share of the environments; results depend on their number, as they do on the seed",
    )
    epochs: int = Field(default=4, ge=1, description="passes over the played frames per update")
    minibatch: int = Field(
        default=2048, ge=1, description="frames per gradient step; must divide num_envs × steps and be a multiple of workers × accumulate"
    )
    accumulate: int = Field(default=1, ge=1, description="least number of pieces in which a minibatch is processed, to save memory")
    gamma: float = Field(default=1.0, gt=0, le=1, description="discount per step (1 is exact for rewards that sum to the score)")
    gae_lambda: float = Field(
        default=0.97, ge=0, le=1, description="λ of generalised advantage estimation: 0 trusts the critic, 1 the return"
    )
    clip: float = Field(default=0.2, gt=0, description="clip range of the ratio of new to old probability")
    learning_rate: float = Field(default=3e-4, gt=0, description="initial learning rate of Adam")
    schedule: ScheduleName = Field(default="linear", description="how the learning rate changes during training")
    final_rate: float = Field(default=0.1, ge=0, le=1, description="learning rate at the end, as a share of the initial one")
    warmup: float = Field(default=0.05, ge=0, lt=1, description="share of training during which warmup_cosine rises")
    schedule_frames: int | None = Field(
        default=None, ge=1, description="frames after which schedules have reached their final values; default: all of training"
    )
    entropy_jump: float | None = Field(
        default=None,
        gt=0,
        description="end an update once the mean entropy has changed by more than this, in nats",
    )
    adam_eps: float = Field(default=1e-5, gt=0, description="epsilon of Adam")
    entropy: float = Field(default=0.01, ge=0, description="initial weight of the entropy bonus")
    final_entropy: float = Field(default=0.0, ge=0, description="final weight of the entropy bonus")
    entropy_schedule: ScheduleName = Field(default="linear", description="how the weight of the entropy bonus changes during training")
    value_weight: float = Field(default=0.5, ge=0, description="weight of the value loss")
    clip_value: float | None = Field(
        default=None, gt=0, description="how far a value may move in one update, in standard deviations of returns; default: no limit"
    )
    normalise_values: bool = Field(default=True, description="let the critic learn returns scaled to mean 0 and deviation 1")
    normalise_advantages: bool = Field(default=True, description="scale the advantages of an update to mean 0 and deviation 1")
    max_gradient: float = Field(default=0.5, gt=0, description="norm to which gradients are clipped")
    target_kl: float = Field(
        default=0.03, ge=0, description="end an update once the KL divergence from the old policy exceeds 1.5 times this; 0: never"
    )
    temperature: float = Field(default=1.0, ge=1, description="exploration: logits are divided by this at first and by 1 in the end")
    temperature_decay: float = Field(default=0.99, gt=0, le=1, description="factor on (temperature − 1) per update")
    imitate: str | None = Field(
        default=None, description="warm start: imitate this heuristic first, e.g. sjf+greedy, or wise with task.dispatch head"
    )
    imitate_frames: int = Field(default=50_000, ge=1, description="frames of the heuristic's play")
    imitate_epochs: int = Field(default=4, ge=1, description="passes over these frames")

    @field_validator("target_kl", mode="before")
    @classmethod
    def _none_is_zero(cls, value: Any) -> Any:
        """Model cards of earlier versions hold null where the update never ends early."""
        return 0.0 if value is None else value


class OffPolicySettings(Config):
    """Settings that all algorithms with a replay buffer share."""

    num_envs: int = Field(default=32, ge=1, le=MOST_ENVS, description="environments played in parallel")
    steps: int = Field(default=128, ge=1, le=MOST_STEPS, description="steps per environment and iteration")
    updates: int = Field(default=1, ge=1, description="gradient steps per step of the environments")
    batch: int = Field(default=256, ge=1, description="transitions per gradient step")
    replay: int = Field(default=200_000, ge=1, description="states in the replay buffer")
    replay_gib: float = Field(default=1.0, gt=0, description="most memory that the replay buffer may take, in GiB")
    first_frames: int = Field(default=10_000, ge=1, description="frames of random play before learning begins")
    gamma: float = Field(default=0.99, gt=0, le=1, description="discount per step")
    n_step: int = Field(default=5, ge=1, description="steps whose rewards are added up before the value estimate")
    learning_rate: float = Field(default=5e-4, gt=0, description="initial learning rate of Adam")
    schedule: ScheduleName = Field(default="linear", description="how the learning rate changes during training")
    final_rate: float = Field(default=0.1, ge=0, le=1, description="learning rate at the end, as a share of the initial one")
    warmup: float = Field(default=0.05, ge=0, lt=1, description="share of training during which warmup_cosine rises")
    max_gradient: float = Field(default=10.0, gt=0, description="norm to which gradients are clipped")
    target_every: int = Field(default=1, ge=1, description="gradient steps between updates of the target network")
    target_share: float = Field(
        default=0.005, gt=0, le=1, description="how far an update moves the target network towards the online network; 1 copies it"
    )


class D3qnSettings(OffPolicySettings):
    """Dueling double deep Q-learning (Wang et al., 2016; van Hasselt et al., 2016) with options from Rainbow."""

    priority: float = Field(default=0.6, ge=0, le=1, description="how strongly errors determine what is replayed; 0: not at all")
    importance: float = Field(
        default=0.4, ge=0, le=1, description="initial share of the resulting bias that is corrected; at the end all of it"
    )
    epsilon: float = Field(default=1.0, ge=0, le=1, description="initial share of random actions")
    final_epsilon: float = Field(default=0.02, ge=0, le=1, description="final share of random actions")
    explore: float = Field(default=0.3, gt=0, le=1, description="share of training during which epsilon falls")
    explore_frames: int | None = Field(
        default=None, ge=1, description="epsilon falls exponentially instead: its distance from the final one shrinks by e every N frames"
    )
    noisy: bool = Field(default=False, description="explore with learnt noise on the weights (Fortunato et al., 2018) instead of epsilon")
    atoms: int = Field(
        default=1, ge=1, description="points of the learnt distribution of returns (Bellemare et al., 2017, use 51); 1: learn the mean"
    )
    support: float = Field(
        default=5.0,
        gt=0,
        description="range of the points on either side of the mean return of random play, in deviations of those returns",
    )


class SacSettings(OffPolicySettings):
    """Soft actor-critic (Haarnoja et al., 2018) for discrete actions (Christodoulou, 2019)."""

    entropy: float = Field(
        default=0.2, ge=0, le=1, description="target entropy in every state, as a share of that of a uniform choice among the legal actions"
    )
    temperature: float = Field(default=0.01, gt=0, description="initial weight of the entropy; it is then adjusted to reach the target")
    fixed_entropy: float | None = Field(
        default=None, ge=0, description="target entropy in nats, the same in every state, instead of a share of that of a uniform choice"
    )
    actor_rate: float | None = Field(default=None, gt=0, description="initial learning rate of the actor; default: learning_rate")
    critic_rate: float | None = Field(default=None, gt=0, description="initial learning rate of the critics; default: learning_rate")
    temperature_rate: float | None = Field(default=None, gt=0, description="initial learning rate of the temperature, likewise")
    policy_delay: int = Field(default=1, ge=1, description="gradient steps of the critics per step of the actor and the temperature")
