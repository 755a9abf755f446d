#!/usr/bin/env node
// player.js KIND WHERE NAME: as player.py, for the packages redlock and redis-semaphore of npm; WHERE is a Redis' Unix socket.
'use strict';
const Redis = require('ioredis');
const [kind, where, name] = process.argv.slice(2);
const redis = new Redis({path: where});

function redlock() {
	const Redlock = require('redlock');
	const locker = new Redlock([redis], {retryCount: -1}); // its default pause between two tries: 200 ms
	let lock;
	return [async () => { lock = await locker.lock(name, 30000); }, () => lock.unlock()];
}

function semaphore() {
	const {Mutex} = require('redis-semaphore');
	const mutex = new Mutex(redis, name, {acquireTimeout: 60000});
	return [() => mutex.acquire(), () => mutex.release()];
}

const [lock, unlock] = {redlock, 'redis-semaphore': semaphore}[kind]();
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC

async function obey(line) {
	const [word, count] = line.split(' ');
	if (word === 'pair') {
		const samples = [];
		for (let i = 0; i < Number(count); i++) {
			const begin = now();
			await lock();
			await unlock();
			samples.push(now() - begin);
		}
		console.log(samples.join(' '));
	} else if (word === 'lock') {
		await lock();
		console.log(String(now()));
	} else if (word === 'unlock') {
		const at = now();
		await unlock();
		console.log(String(at));
	}
}

async function main() {
	await redis.ping();
	console.log('ready');
	for await (const line of require('readline').createInterface({input: process.stdin}))
		await obey(line);
	redis.disconnect();
}
main();
