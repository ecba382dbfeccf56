/** Exchanging the single-use code of a sign-in link for a session, and what is said when that does not work. */

import { useEffect, useState } from "react";
import { ApiError, api, UNREACHABLE, unwrap } from "../api/client";
import { useTitle } from "../lib/hooks";

/** The code in the address, taken out of it at once: it must not stay in the history or in a bookmark. */
export function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code !== null) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

export function SignInPage({ code, onSignedIn }: { code: string | null; onSignedIn: () => void }) {
  useTitle("Sign in");
  const [problem, setProblem] = useState<Error | null>(null);
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    if (code === null) return;
    let stale = false;
    setProblem(null);
    exchange(code, attempt).then(
      () => !stale && onSignedIn(),
      (error: Error) => !stale && setProblem(error),
    );
    return () => {
      stale = true;
    };
  }, [code, attempt, onSignedIn]);

  if (code !== null && !problem) return <main className="sign-in">Signing in…</main>;
  const isAway = problem instanceof ApiError && problem.code === UNREACHABLE;
  return (
    <main className="sign-in">
      <h1 className="verdict-text">{isAway ? "The server does not answer" : "Sign in to halfscope"}</h1>
      {isAway ? (
        <>
          <p>{problem.message}</p>
          <button type="button" className="button" onClick={() => setAttempt(attempt + 1)}>
            Try again
          </button>
        </>
      ) : (
        <>
          <p>
            {problem
              ? "This sign-in link was used already or is older than ten minutes."
              : "This browser is not signed in, or its session has ended."}
          </p>
          <p>On the machine that runs the server, get a new link with</p>
          <pre className="snippet">
            <code>halfscope open</code>
          </pre>
        </>
      )}
    </main>
  );
}

/** One exchange per code, however often an effect runs: the second try of a single-use code would fail. */
const exchanges = new Map<string, Promise<unknown>>();

function exchange(code: string, attempt: number): Promise<unknown> {
  const key = `${code} ${attempt}`;
  const running = exchanges.get(key) ?? unwrap(api.POST("/api/v1/session", { body: { code } }));
  exchanges.set(key, running);
  return running;
}
