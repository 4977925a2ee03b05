/** What all errors of this package are. */
export class HeadgateError extends Error {
  override name = "HeadgateError";
}

export type FailureKind = "timeout" | "unreachable" | "status" | "malformed";

/** Headgate did not answer. */
export class Unavailable extends HeadgateError {
  override name = "Unavailable";
  constructor(readonly kind: FailureKind, message: string, options?: ErrorOptions) {
    super(`headgate: ${message}`, options);
  }
}

/** Headgate refused the call itself, such as for a wrong token or an invalid field. */
export class Mistake extends HeadgateError {
  override name = "Mistake";
  constructor(readonly status: number, readonly detail: string) {
    super(`headgate: ${status}: ${detail}`);
  }
}
