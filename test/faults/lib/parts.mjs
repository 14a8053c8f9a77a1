// An event about several subjects, as the checker's other parts look at it. Pure.

/** The event as one about each of its subjects. */
export const parts = (history, event) =>
  (history.joints.get(event.subject) ?? [event.subject]).map((subject) => ({ ...event, subject }));

export const isAbout = (history, event, subject) =>
  parts(history, event).some((part) => part.subject === subject);
