// Some users follow and some leave a subject while it is published about, at the same moment.

export default {
  name: 'follow-race', lane: 'follow', weight: 1,
  async inject({ follows, users, subjects }, random) {
    const subject = random.pick(subjects);
    const pairs = random.sample(users, random.int(1, 4)).map((user) => [user, subject]);
    await follows.change(random.pick(['follow', 'unfollow', 'unfollow']), pairs);
    if (random.chance(0.5)) await follows.change('follow', pairs);
  },
};
