// Half of the clients lose their connections at once and come back at once.

export default {
  name: 'storm', lane: 'client', weight: 0.5,
  async inject({ clients }, random) {
    for (const client of random.sample(clients, clients.length / 2)) client.drop();
  },
};
