/* As player.py: Curator's InterProcessMutex, at WHERE (HOST:PORT), of this NAME. */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

class Curator {
	public static void main(String[] words) throws Exception {
		CuratorFramework client = CuratorFrameworkFactory.newClient(words[0], new RetryOneTime(100));
		client.start();
		client.blockUntilConnected();
		InterProcessMutex lock = new InterProcessMutex(client, "/" + words[1]);
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		System.out.println("ready");
		for (String line; (line = in.readLine()) != null;) {
			long at;
			if (line.startsWith("pair ")) {
				StringBuilder samples = new StringBuilder();
				for (int i = Integer.parseInt(line.substring(5)); i > 0; i--) {
					at = System.nanoTime();
					lock.acquire();
					lock.release();
					samples.append(System.nanoTime() - at).append(' ');
				}
				System.out.println(samples);
			} else if (line.equals("lock")) {
				lock.acquire();
				System.out.println(System.nanoTime());
			} else {
				at = System.nanoTime();
				lock.release();
				System.out.println(at);
			}
		}
	}
}
