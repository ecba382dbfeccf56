/** Requests to the server: one typed client, and every failure as an ApiError that says what happened and what to do. */

import createClient from "openapi-fetch";
import { PREFIX } from "../lib/base";
import type { paths } from "./schema";
import type { Problem } from "./types";

export const api = createClient<paths>({
  baseUrl: typeof location === "undefined" ? PREFIX : location.origin + PREFIX,
  // Repeated keys, as FastAPI reads lists.
  querySerializer: { array: { style: "form", explode: true } },
});

/** The run a request was for is deleted: what its page then shows. */
export interface DeletedRun {
  run: string;
  name: string;
  deleted_us: number;
}

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly deleted: DeletedRun | null;

  constructor(status: number, code: string, message: string, requestId = "", deleted: DeletedRun | null = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.deleted = deleted;
  }
}

/** No answer at all: the server is stopped, restarting, or the network is away. */
export const UNREACHABLE = "unreachable";

type Answer<T> = { data?: T; error?: unknown; response: Response };

/** The body of an answer.
 *
 * @throws ApiError for any status but success, and with code `unreachable` where no answer came.
 */
export async function unwrap<T>(request: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await request;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, UNREACHABLE, "The server does not answer. Check that `halfscope serve` is running.");
  }
  if (answer.response.ok) return answer.data as T;
  const { status } = answer.response;
  const problem = (answer.error ?? {}) as Partial<Problem & DeletedRun>;
  const { run, name, deleted_us } = problem;
  throw new ApiError(
    status,
    problem.code ?? `http_${status}`,
    problem.detail ?? `The server answered ${status} without saying why.`,
    problem.request_id ?? answer.response.headers.get("x-request-id") ?? "",
    run !== undefined && name !== undefined && deleted_us !== undefined ? { run, name, deleted_us } : null,
  );
}

export function isSignedOut(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}
