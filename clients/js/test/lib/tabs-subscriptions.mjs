// Subscriptions of tabs that share a connection: it has the subjects of all tabs, and no others.

import assert from 'node:assert/strict';
import { publish, sessionsOf } from '../../../../test/lib/client.mjs';
import { test } from '../../../../test/lib/halley.mjs';
import { metric } from '../../../../test/lib/metrics.mjs';
import { sleep, until } from '../../../../test/lib/wait.mjs';

const subscribe = (tab, subject) =>
  tab.evaluate((one) => window.one.halley.subscribe(one), subject);
const unsubscribe = (tab, subject) =>
  tab.evaluate((one) => window.one.halley.unsubscribe(one), subject);

/** What a tab has of these subjects; it may see more, as others wanted more. */
const has = (tab, subjects) => tab.evaluate((all) => window.one.events
  .filter(({ subject }) => all.includes(subject)).map(({ data }) => data), subjects);

const hasAll = (tab, subjects, expected) => until(`${expected} of ${subjects}`, async () =>
  JSON.stringify(await has(tab, subjects)) === JSON.stringify(expected)).catch(async (error) => {
  assert.deepEqual(await has(tab, subjects), expected);
  throw error;
});

/** `world()` gives the Halley, and `tabsOf` opens tabs of one user. */
export function subscriptions(world, tabsOf, tabWith) {
  const counted = (count) => until(`${count} subscriptions`, async () =>
    await metric(world(), 'halley_subscriptions') === count).catch(async (error) => {
    assert.equal(await metric(world(), 'halley_subscriptions'), count);
    throw error;
  });
  for (const transports of [['websocket'], ['sse']]) {
    const [name] = transports;

    test(`${name}: three tabs with subjects of their own have one session with all of them`,
      async () => {
        const user = `union-${name}`;
        const [a, b, c] = ['a', 'b', 'c'].map((letter) => `${user} ${letter}`);
        const { context, tabs } = await tabsOf(2, user, { transports, subjects: [a] });
        tabs.push(await tabWith(context, user, { transports, subjects: [c, a] }));
        const [leader, second, third] = tabs;
        await subscribe(second, b);
        const say = async (n) => {
          for (const subject of [a, b, c]) await publish(world(), subject, n);
        };
        await say(1);
        await hasAll(leader, [a], [1]);
        await hasAll(second, [a, b], [1, 1]);
        await hasAll(third, [a, c], [1, 1]);
        assert.equal(await sessionsOf(world(), user), 1);
        await counted(3);
        // The one that leads goes: whoever is next has its own, and asks the other's.
        const closing = leader.close();
        await say(2);
        await closing;
        await say(3);
        await hasAll(second, [a, b], [1, 1, 2, 2, 3, 3]);
        await hasAll(third, [a, c], [1, 1, 2, 2, 3, 3]);
        await until('one session', async () => await sessionsOf(world(), user) === 1);
        await unsubscribe(second, b);
        await counted(2);
        await third.close();
        await counted(1);
        await say(4);
        await hasAll(second, [a, b], [1, 1, 2, 2, 3, 3, 4]);
        await context.close();
        await counted(0);
      });
  }

  test('a tab whose subjects the common session can\'t have has a connection of its own',
    async () => {
      const many = (word) => Array.from({ length: 60 }, (_, n) => `${word} ${n}`);
      const { context, tabs: [leader] } = await tabsOf(1, 'full', { subjects: many('x') });
      const other = await tabWith(context, 'full', { subjects: many('y') });
      await until('two sessions', async () => await sessionsOf(world(), 'full') === 2);
      for (const subject of ['x 0', 'x 59', 'y 0', 'y 59']) {
        await publish(world(), subject, subject);
      }
      await hasAll(leader, ['x 0', 'x 59'], ['x 0', 'x 59']);
      await hasAll(other, ['y 0', 'y 59'], ['y 0', 'y 59']);
      await context.close();
    });

  test('a tab that is refused a subject is told so, the others hear nothing of it', async () => {
    const { context, tabs: [leader, other] } = await tabsOf(2, 'refused');
    const told = await other.evaluate(() => window.one.halley.subscribe('x'.repeat(256))
      .catch(({ code }) => code));
    assert.equal(told, 'bad_subject');
    await sleep(200);
    for (const tab of [leader, other]) {
      assert.equal(await tab.evaluate(() => window.one.halley.state), 'open');
    }
    await context.close();
  });

  test('close in the tab that leads is its own end, not that of the others', async () => {
    const { context, tabs: [leader, other] } = await tabsOf(2, 'leaver');
    await leader.evaluate(() => window.one.halley.close());
    await until('the other leads', async () => await sessionsOf(world(), 'leaver') === 1);
    await publish(world(), 'leaver', 1);
    await hasAll(other, ['leaver'], [1]);
    assert.equal(await leader.evaluate(() => window.one.halley.state), 'closed');
    assert.deepEqual(await has(leader, ['leaver']), []);
    await context.close();
  });
}
