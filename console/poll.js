/** What is looked at again and again while a view is there, and not while nobody sees it. */

/** Does `work` at once and then `ms` after each end of it, until `signal` ends. */
export function every(signal, ms, work) {
  let timer;
  const next = async () => {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        await work();
      } catch (error) {
        // The next time may be better; what must be said is said by `work`.
        if (error.name !== "AbortError") console.debug(error.message);
      }
    }
    if (!signal.aborted) timer = setTimeout(next, ms);
  };
  const seen = () => {
    if (document.hidden) return;
    clearTimeout(timer);
    next();
  };
  document.addEventListener("visibilitychange", seen);
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  });
  next();
}

/** Does `work` for each of `items`, so many at once. */
export async function eachOf(items, atOnce, work) {
  const waiting = [...items];
  const worker = async () => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, waiting.length) }, worker));
}
