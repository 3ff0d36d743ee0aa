/** What engines cost beside the links: launching a collective, and joining a stream. Microseconds. */

/**
 * What a collective inside a captured graph costs beside NCCL's own time: joining its stream and leaving it. Fitted to
 * PyTorch 2.11 on H200 (bench/peers/llama_torch.py, 2026-11-20).
 */
export const COLLECTIVE_LAUNCH_US = 5;

/**
 * Launching a collective whose engine is not NCCL or RCCL: among ranks that share a device's memory, and otherwise. The
 * rest is alpha-beta, from the links. Assumed, not measured.
 */
export const ENGINE_BASE_US = { device: 1, other: 10 } as const;
