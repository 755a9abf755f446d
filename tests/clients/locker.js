#!/usr/bin/env node
// locker.js KIND SOCKET KEY TTL_MS [PAUSE]: as locker.py, for redlock, redis-semaphore and node-redisson (package.json has the versions).
// redis-semaphore puts "mutex:" before its keys: KEY must begin with it.
'use strict';
const fs = require('fs');
const Redis = require('ioredis');
const [kind, path, key, ttlWord, pauseWord] = process.argv.slice(2);
const ttl = Number(ttlWord), pause = pauseWord === undefined ? undefined : Number(pauseWord) * 1000;
const sleep = ms => new Promise(wake => setTimeout(wake, ms));
const unlessLost = async what => { try { await what(); return true; } catch (error) { return false; } };

function redlock() {
	const Redlock = require('redlock');
	const retryDelay = pause === undefined ? 200 : pause;
	const locker = new Redlock([new Redis({path})], {retryCount: -1, retryDelay, retryJitter: retryDelay / 2});
	let lock;
	return {
		lock: async () => { lock = await locker.lock(key, ttl); },
		attempt: async () => unlessLost(async () => {
			lock = await new Redlock(locker.servers, {retryCount: 0}).lock(key, ttl);
		}),
		unlock: () => unlessLost(() => locker.unlock(lock)),
	};
}

function semaphore() {
	const {Mutex} = require('redis-semaphore');
	const redis = new Redis({path});
	const options = {lockTimeout: ttl, onLockLost: () => {}, acquireTimeout: 3600000, ...(pause === undefined ? {} : {retryInterval: pause})};
	const make = more => new Mutex(redis, key.replace(/^mutex:/, ''), {...options, ...more});
	let mutex;
	return {
		lock: () => (mutex = make()).acquire(),
		attempt: () => (mutex = make({acquireAttemptsLimit: 1})).tryAcquire(),
		// release() says nothing of a lock that was lost: whether the key was its own is looked at before.
		unlock: async () => {
			const own = await redis.get(key) === mutex.identifier;
			await mutex.release();
			return own;
		},
	};
}

function redisson() {
	const {Redisson} = require('node-redisson');
	const lock = new Redisson({redis: {options: {path}}, lockWatchdogTimeout: BigInt(ttl)}).getLock(key);
	return {
		lock: () => lock.lock(),
		attempt: () => lock.tryLock(0, true),
		unlock: () => unlessLost(() => lock.unlock()),
		force: () => lock.forceUnlock(),
	};
}

async function count(lock, file, times, ms) {
	for (let done = 0; done < times; done++) {
		await lock.lock();
		const n = Number(fs.readFileSync(file));
		if (ms)
			await sleep(ms);
		fs.writeFileSync(file, String(n + 1));
		if (!await lock.unlock())
			return `lost ${done}`;
	}
	return `counted ${times}`;
}

async function spin(lock, seconds, ms) {
	const end = Date.now() + 1000 * seconds;
	let times = 0;
	while (Date.now() < end) {
		await lock.lock();
		await sleep(ms);
		await lock.unlock();
		times++;
	}
	return `spun ${times}`;
}

async function obey(lock, word, ...more) {
	switch (word) {
	case 'lock': await lock.lock(); return 'locked';
	case 'try': return await lock.attempt() ? 'locked' : 'busy';
	case 'unlock': return await lock.unlock() ? 'unlocked' : 'lost';
	case 'force': return await lock.force() ? 'unlocked' : 'lost';
	case 'spin': return spin(lock, ...more.map(Number));
	case 'count': return count(lock, more[0], Number(more[1]), Number(more[2] || 0));
	}
	throw new Error(word);
}

async function main() {
	const lock = {redlock, 'redis-semaphore': semaphore, 'node-redisson': redisson}[kind]();
	console.log('ready');
	for await (const line of require('readline').createInterface({input: process.stdin}))
		console.log(await obey(lock, ...line.trim().split(' ')));
	process.exit(0);
}
main();
