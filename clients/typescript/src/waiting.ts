/** Waiting with a timeout and with a signal of the caller. */

import { SandboxTimeoutError } from "./errors.js";
import { TIMER_MS_MAX } from "./limits.js";
import { platform } from "./platform.js";

/** Does something when a signal is aborted, until the function that this returns is called. */
export function onAbort(signal: AbortSignal | undefined, action: () => void): () => void {
  if (signal === undefined) return () => undefined;
  // Many calls may share a signal, which is no leak.
  platform().allowListeners(signal);
  signal.addEventListener("abort", action, { once: true });
  return () => signal.removeEventListener("abort", action);
}

/**
 * Does work under a signal that is aborted when the caller's is, or when the time is over. The time is
 * none if it is left out.
 */
export async function within<T>(
  ms: number | undefined,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const link = linked(ms, outer);
  try {
    return await work(link.signal);
  } finally {
    link.release();
  }
}

/** A signal that follows another one and a timer until it is released. */
export interface Link {
  readonly signal: AbortSignal;
  /** Restarts the timer, or stops it if the time is left out. */
  wait(ms: number | undefined): void;
  abort(reason: unknown): void;
  /** Stops following the other signal and stops the timer. */
  release(): void;
}

export function linked(ms: number | undefined, outer: AbortSignal | undefined): Link {
  const controller = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const follow = () => controller.abort(outer?.reason);
  if (outer?.aborted === true) follow();
  const forget = onAbort(outer, follow);
  const link: Link = {
    signal: controller.signal,
    wait(next) {
      clearTimeout(timer);
      if (next === undefined || next > TIMER_MS_MAX) return;
      const message = `there was no answer within ${next} ms`;
      const over = () => controller.abort(new SandboxTimeoutError(message, { timeoutMs: next }));
      timer = setTimeout(over, next);
    },
    abort: (reason) => controller.abort(reason),
    release() {
      clearTimeout(timer);
      forget();
    },
  };
  link.wait(ms);
  return link;
}

/** Waits for a while. Rejects with the reason of the signal if it is aborted meanwhile. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      forget();
      resolve();
    }, ms);
    const forget = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
  });
}

/**
 * Does what must be done although the caller gives up: within its own time, and without hiding why the
 * caller gave up.
 */
export async function regardless(
  ms: number,
  work: (signal: AbortSignal) => Promise<unknown>,
): Promise<void> {
  await within(ms, undefined, work).catch(() => undefined);
}
